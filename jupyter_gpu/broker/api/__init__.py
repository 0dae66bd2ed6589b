"""The broker's doors: versioned HTTP, one handler per verb, one place that turns an error into an answer."""
