"""The one Store over two thin Database adapters, its SQL, its migrations, and payload stores."""
