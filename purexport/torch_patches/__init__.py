"""What is replaced in torch while it is asked, and put back afterwards: `table.py` lists all of it."""
