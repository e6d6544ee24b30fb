"""Pictures of states and runs, each with a text twin. Import the modules; this one loads nothing."""
