"""Raw text -> documents -> sentences -> token store -> sentence pairs -> masked examples."""
