"""The table of damage: thirty kinds of damage to a store times every command, reader and opening."""
