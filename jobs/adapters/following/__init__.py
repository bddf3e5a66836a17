"""Following tables as they grow: from where a reader stands, to a view with its age."""
