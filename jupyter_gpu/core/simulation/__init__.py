"""What a trace of jobs would have come to: read one, replay it under several policies, and say what each led to."""
