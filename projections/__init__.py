"""Read models: pure folds of one stream's events into rows, and the queries over them."""
