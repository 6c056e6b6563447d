"""The outbound agent: it dials out, takes work, does it and reports what happened."""
