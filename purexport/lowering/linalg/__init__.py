"""Rules of linear algebra: products, factorizations, eigenvalues, solutions."""
