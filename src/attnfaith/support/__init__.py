"""What every part uses: errors, files, escapes, random streams and provenance. Imports no part of the package."""
