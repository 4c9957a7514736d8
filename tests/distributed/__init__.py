"""Saves by the processes of a group."""
