"""The declarative model of layouts at given degrees, and the search over these degrees."""
