"""Route handlers, one module per group of routes of http.md."""
