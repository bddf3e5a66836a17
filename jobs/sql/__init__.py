"""SQL over the tables: views with documented columns, and ready queries."""
