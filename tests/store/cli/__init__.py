"""The ``commitlog`` command on the golden stores and on stores of trouble, in process and as the installed script."""
