"""An open store: connects the parts, from opening to closing."""
