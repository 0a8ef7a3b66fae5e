"""An independent port with a switch for every mistake, and how well the oracle names what the switches do."""
