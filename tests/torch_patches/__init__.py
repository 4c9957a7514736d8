"""Tests of what is replaced in torch."""
