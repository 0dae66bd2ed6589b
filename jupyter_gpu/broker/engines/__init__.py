"""What starts work, and sometimes places it. The seam is `base`; each engine is one module beside it."""
