"""Rules of a job as a pure state machine: events in; views, records and orders out. No clock, no thread, no file."""
