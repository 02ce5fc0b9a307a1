"""The running process: signals, streams, executors, errors, versions, the installation."""
