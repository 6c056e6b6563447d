"""Farms of 3D printers whose job states come from telemetry."""
