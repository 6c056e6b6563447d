"""Linking a WhatsApp account from a web page, through a queue of commands."""
