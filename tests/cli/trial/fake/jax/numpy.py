"""It is never used."""
