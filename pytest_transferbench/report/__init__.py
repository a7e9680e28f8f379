"""What people and machines read: header, live figures, matrix, JUnit properties, readable assertions."""
