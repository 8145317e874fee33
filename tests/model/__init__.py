"""The store beside a plain model of it, through random histories."""
