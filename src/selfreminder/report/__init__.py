"""From records to tables and pictures. A figure is drawn from records alone."""
