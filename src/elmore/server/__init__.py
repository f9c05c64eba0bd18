"""The HTTP API and the web page of `elmore serve`."""
