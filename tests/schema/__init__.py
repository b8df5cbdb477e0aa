"""What is generated from our structs for readers in other languages."""
