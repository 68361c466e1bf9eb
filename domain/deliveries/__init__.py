"""One payload to one destination, decided event by event (delivery.md, Durable delivery)."""
