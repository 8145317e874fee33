"""``verify_store`` on whole stores, and on stores with one thing wrong."""
