"""The comparison of states between members."""
