"""The `minutebook` command line; each verb is a thin function over the objects that `serve` uses."""
