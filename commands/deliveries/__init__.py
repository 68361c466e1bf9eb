"""Planning, sending, mending and looking at deliveries (delivery.md, Durable delivery)."""
