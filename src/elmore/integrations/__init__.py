"""elmore inside other libraries; each module needs an extra."""
