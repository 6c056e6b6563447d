"""The long drills: marked `soak`, run by `make soak`."""
