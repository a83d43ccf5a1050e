"""What tasks that label sequences share: encoders, data, training, evaluation, subcommands."""
