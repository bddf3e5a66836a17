"""Following of growing tables: from the reader's version to a view with its age."""
