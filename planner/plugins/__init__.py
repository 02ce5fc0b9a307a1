"""Methods and plans that users bring: a function in a file, of an installed package, or of this process; plan files.

A function runs in a process of its own (`runner`), and nothing that it returns is believed: plans are judged
by the definition (`methods`), so that whatever goes wrong is a result with a reason.
"""
