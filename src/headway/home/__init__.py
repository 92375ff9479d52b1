"""Where one installation lives: its folders and database, how its processes are started, how its
server is reached.

Standard library only: client, agent and command line all read it. Calls wire and model.
"""
