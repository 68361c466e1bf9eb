"""What rooms do without anybody asking: sweeps by the clock, and the process that answers their events with jobs."""
