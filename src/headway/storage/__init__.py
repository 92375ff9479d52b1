"""Storage elsewhere: S3, Azure Blob and folders, through obstore, which is the optional extra
`storage`. Accounts are named in the settings; their keys come from the environment or the private
file and are stored with nothing.
"""
