"""What the Delta protocol says: values in, values out.

Nothing here opens a file, asks the clock, draws a random number or knows Spark. Bytes, listings and times come in as arguments.
"""
