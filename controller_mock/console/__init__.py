"""What a person sees of the controller: the command line and its views."""
