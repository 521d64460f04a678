"""branchbench: does memory leak across branches?  Scenarios, methods of remembering, models that answer, and counting.

    branchmem bench            # from a clone of the repository, which has the data

It may know the public face of branchmem, and nothing of branchmem knows it but the command line.

scenario    what happened in a conversation, and what is asked about it
keywords    whether a word stands in a text, and whether the text denies it
validator   which scenarios are fit to be asked
manifest    the files of the data, read once their hashes match
long        the generator of the long part
methods     ways to remember, behind one interface
models      who answers, extracts, sums up and embeds
measures    what a context and an answer give away
run         every method asked every probe
setting     names, as a command line gives them, into models and tools
repeat      whether a model says the same again
table       the tables of a run
plot        its picture
packing     bytes that are kept compressed
report      a results folder: all of that, and every answer behind it
"""
