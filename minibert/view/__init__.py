"""What people look at: self-contained HTML pages and their figures. Nothing here knows what a page is about."""
