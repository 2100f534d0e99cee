"""What a finished run says: summary and pictures."""
