"""What a person sees: tables, pages, pictures, progress."""
